"""What macluster does, without a screen: three kinds of process and the values they exchange."""

from core.mac.open_file_limit import stay_within_the_hard_limit

stay_within_the_hard_limit()
