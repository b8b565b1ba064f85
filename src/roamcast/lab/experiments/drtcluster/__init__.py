"""`roamcast reproduce drtcluster`: the experiments of the DRt-Cluster paper."""
