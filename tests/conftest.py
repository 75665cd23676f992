"""What every test starts from."""

import signal

# A shell's background job has SIGINT ignored and nohup ignores SIGHUP; both are inherited, and our tests send them.
for number in (signal.SIGHUP, signal.SIGQUIT):
    signal.signal(number, signal.SIG_DFL)
signal.signal(signal.SIGINT, signal.default_int_handler)
