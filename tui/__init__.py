"""The terminal: screens, keys and the macluster command."""

import os

# Textual draws changes in its next frame, and a key should not wait 17 ms for that; nothing is drawn more
# often for it. Textual reads this when it is imported.
os.environ.setdefault("TEXTUAL_FPS", "120")
