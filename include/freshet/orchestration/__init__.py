"""What Airflow runs: the DAGs of a load, the operator of the Spark jobs, the local Airflow and the demo.

The only package that imports airflow. `local`, `api` and `demo` talk to Airflow over its REST interface and
import none of it, so that the commands start quickly.
"""
