"""An agent that only tells what it was given. LOG in the environment; CRASHES: how many of its lives end at once."""

import json
import os
import sys

log = os.environ["LOG"]
with open(log, "a") as file:
    fds = sorted(int(fd) for fd in os.listdir("/proc/self/fd"))
    given = {
        "argv": sys.argv[1:],
        "session": os.getsid(0) == os.getpid(),
        "spool": os.environ.get("RANKTOP_SPOOL"),
        "stdio": [os.readlink(f"/proc/self/fd/{fd}") for fd in range(3)],
        "cwd": os.getcwd(),
        "fds": [fd for fd in fds if fd > 2 and os.path.exists(f"/proc/self/fd/{fd}") and fd != file.fileno()],
    }
    file.write(json.dumps(given) + "\n")
with open(log) as file:
    lives = sum(line.startswith("{") for line in file)
if lives <= int(os.environ.get("CRASHES", "0")):
    sys.exit(1)
control = os.fdopen(int(sys.argv[sys.argv.index("--control-fd") + 1]))
for line in control:
    with open(log, "a") as file:
        file.write("control " + line)
    if '"code"' in line:
        os.write(int(sys.argv[sys.argv.index("--ack-fd") + 1]), b"ended\n")
        break
