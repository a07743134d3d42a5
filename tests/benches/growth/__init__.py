"""How costs grow with what a home holds: each curve is a file here, and a row of `CURVES` in `curves`."""
