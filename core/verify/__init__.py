"""What can be proved on this very Mac?"""
