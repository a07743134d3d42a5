"""On PYTHONPATH it takes from Python what only Linux has, so that a test which needs it fails here too."""

import os
import signal
import socket

NAMES = {
    socket: "SO_BINDTODEVICE SO_PASSCRED SO_PEERCRED AF_NETLINK AF_VSOCK SOCK_CLOEXEC SOCK_NONBLOCK "
    "TCP_QUICKACK TCP_USER_TIMEOUT TCP_INFO TCP_CORK MSG_ERRQUEUE",
    os: "waitid P_PID WEXITED WNOWAIT pidfd_open memfd_create sched_getaffinity sched_setaffinity eventfd fdatasync "
    "posix_fadvise posix_fallocate getrandom splice copy_file_range setns unshare pipe2 getresuid "
    "O_PATH O_TMPFILE O_DIRECT",
    signal: "pidfd_send_signal sigtimedwait sigwaitinfo SIGRTMIN SIGPWR SIGSTKFLT",
}
for module, names in NAMES.items():
    for name in names.split():
        if hasattr(module, name):
            delattr(module, name)
