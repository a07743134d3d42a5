"""macluster without a screen: the node, the worker, and the values that processes exchange."""

from core.mac.open_file_limit import stay_within_the_hard_limit

stay_within_the_hard_limit()
