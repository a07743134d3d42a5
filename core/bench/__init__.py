"""How fast is it, against something run beside it?"""
