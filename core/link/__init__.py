"""How do bytes get from one Mac to another, sealed?"""
