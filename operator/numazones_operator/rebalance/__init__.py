"""Rebalancing, live: policies become plans, plans become recommendations, and approved ones are carried out.

``intent`` is what people ask for, ``readiness`` whether a policy can be followed. ``rebalancing`` is the
loop: ``proposer`` finds plans and publishes them, ``executor`` carries approved ones out by the ``steps`` of
their moves, ``statuses`` writes what came of it. ``inputs`` mirrors what planning needs beyond the cluster,
``objects`` translates between custom resources and the library's values. Everything that must survive a
restart is in the API objects.
"""
