"""What does the process that owns layers do?"""
