"""`roamcast match`: files and tables are read, matched and written."""
