"""``kubectl numazones``: why is this pod stuck, who holds what, what would fit, what would help.

For people at a terminal, on the live cluster or offline from a dump. It asks the same library as the operator
and needs no operator. A command is a module of its own in ``commands/``, imported only when it runs;
``cluster`` says where objects come from, ``answers`` what the library is asked, ``screen`` how it is shown.
"""
