"""The Airflow pool that bounds how many Spark drivers run at once."""

from __future__ import annotations

SPARK_POOL = "freshet_spark"
SPARK_POOL_SLOTS = 4
SPARK_POOL_DESCRIPTION = "Spark drivers of Freshet's loads that may run at once"
