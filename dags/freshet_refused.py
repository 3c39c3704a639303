"""The load definitions that cannot be used, shown as an Airflow DAG import error.

A DAG file that raises yields no DAGs at all, so the refusal has a file of its own: the DAGs of the other
definitions, in freshet_loads.py, stay up.
"""

from freshet.errors import DefinitionError
from freshet.orchestration.dags import all_dags

_, refused = all_dags()
if refused:
    raise DefinitionError("\n\n".join(str(error) for error in refused))
