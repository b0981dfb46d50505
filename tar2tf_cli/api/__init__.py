"""The interfaces between the packages of tar2tf, one file each, and the values that pass through them.

Every package may import these modules; they import nothing but `errors` and `events`.
"""
