"""What macluster does, without a screen: three kinds of process and the values they exchange."""

from core.mac.descriptors import stay_within_the_hard_limit

stay_within_the_hard_limit()
