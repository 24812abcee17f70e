"""All targets by name."""

from checks.laws.fuzz.targets import cluster, files, grammars, models, node

TARGETS = {
    target.name: target for module in (node, models, cluster, files, grammars) for target in module.TARGETS
}
