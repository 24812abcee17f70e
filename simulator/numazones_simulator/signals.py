"""Which signals end a command of the simulator in order, leaving neither programs nor files behind."""

import signal


def ending_signals() -> list[signal.Signals]:
    """Ctrl-C, a polite end, and the end of the terminal, unless ``nohup`` had that ignored."""
    wanted = [signal.SIGINT, signal.SIGTERM, signal.SIGHUP]
    return [number for number in wanted if signal.getsignal(number) is not signal.SIG_IGN]
