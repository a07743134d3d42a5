import os

import tests.support.made_families  # noqa: F401 - registers them

# a node of a test keeps its key in a file; on a Mac each would leave an item in the person's keychain
os.environ["PYTHON_KEYRING_BACKEND"] = "keyring.backends.fail.Keyring"
