"""`roamcast reproduce cet`: the experiments of the CET paper."""
