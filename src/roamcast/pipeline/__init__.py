"""The Spark pipeline: journal in, letters out. Only this package and `roamcast.spark` import pyspark."""
