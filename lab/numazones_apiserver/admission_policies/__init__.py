"""MutatingAdmissionPolicy and ValidatingAdmissionPolicy, evaluated as kube-apiserver does."""
