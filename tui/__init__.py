"""The terminal: screens, keys and the macluster command."""

import os

# Textual draws what changed when its next frame begins, and a key should not wait 17 ms for that; nothing is drawn more
# often for it. It reads this when it is imported.
os.environ.setdefault("TEXTUAL_FPS", "120")
