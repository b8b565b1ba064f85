"""`roamcast reproduce postoffice`: the figures of the post office paper."""
