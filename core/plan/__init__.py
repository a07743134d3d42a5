"""Who owns which layers?"""
