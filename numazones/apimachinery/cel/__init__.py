"""Expressions of the Common Expression Language, as Kubernetes evaluates them.

Two places of the API hold expressions: selectors of devices (``numazones.dra.selectors``) and admission
policies (the embedded API server of the lab). Both are compiled and evaluated here.

The CEL library that the Python world keeps (``cel-expr-python``, Google's C++ implementation) parses and
type-checks (``environment``); this package evaluates the checked tree (``evaluation``), because the library
knows neither the values that Kubernetes adds (``values``, ``kubernetes_functions``) nor its limit on what an
evaluation may cost, and crashes on optional values within lists. What Kubernetes has and this package has
not is an ``Unsupported`` error that names it: whoever asks reports Unknown.

Reference: ``k8s.io/apiserver/pkg/cel`` and its vendored cel-go, Kubernetes 1.36.
"""
