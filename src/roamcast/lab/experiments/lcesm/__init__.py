"""`roamcast reproduce lcesm`: the experiment of the LCESM paper."""
