import tests.support.made_families  # noqa: F401 - registers them
