"""The page: what `kubectl numazones report` writes into a file and the operator serves live.

Pure, like the library below it: values in, JSON documents and texts out. The browser's part (``static``) is
hand-written and needs no build step; it is read once, when it is asked for.
"""
