"""The Airflow DAGs of every load definition.

Definitions are the YAML files in FRESHET_LOADS. Those that cannot be used are left out here, and reported by
freshet_refused.py as that file's import error.
"""

from freshet.orchestration.dags import all_dags

dags, _ = all_dags()
globals().update({dag.dag_id: dag for dag in dags})
