"""The interfaces between the rooms, one file each, and the values that travel through them.

Every room may import them; they import nothing but `errors` and `events`.
"""
