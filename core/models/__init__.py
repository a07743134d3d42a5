"""What is a model, and how does a slice of it run?"""
