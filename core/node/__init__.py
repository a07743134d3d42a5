"""What does the service on each Mac do?"""
