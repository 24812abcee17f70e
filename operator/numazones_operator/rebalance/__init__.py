"""Rebalancing, live: policies become plans, plans become recommendations, and approved ones are carried out.

``inputs`` mirrors what planning needs beyond the cluster, ``objects`` translates between custom resources and
the library's values, ``planning`` searches, ``execution`` carries one recommendation out step by step, and
``controller`` is the loop that drives them. Everything that must survive a restart is in the API objects.
"""
