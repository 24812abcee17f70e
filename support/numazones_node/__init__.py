"""Files and sockets of a node: its machine in sysfs, and the messages of podresources.

The exporter reads them, the plugin reads a recorded node's, and the simulator writes and serves them.
"""
