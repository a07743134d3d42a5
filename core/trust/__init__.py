"""Who is who, and how far are they trusted?"""
