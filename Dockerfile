# The one image of docker-compose.yaml: Airflow's components, Spark's master and worker, and the drivers run the
# same code in the same place. tools/setup installs it, as on any machine; requirements.txt has the versions.
FROM python:3.12-slim-bookworm

WORKDIR /opt/freshet
COPY requirements.txt pyproject.toml README.md LICENSE ./
COPY tools tools
COPY include include
COPY sql sql
RUN tools/setup \
    && rm -rf /var/lib/apt/lists/* ~/.cache .freshet/ivy/cache .freshet/log

COPY dags dags
COPY jobs jobs
COPY plugins plugins

# The volumes of docker-compose.yaml take over these folders' owner.
RUN useradd --uid 50000 --create-home freshet \
    && install -d -o freshet /var/lib/freshet /var/lib/airflow
USER freshet

ENV PATH=/opt/freshet/.freshet/venv/bin:$PATH \
    PYSPARK_PYTHON=/opt/freshet/.freshet/venv/bin/python \
    FRESHET_HOME=/var/lib/freshet \
    AIRFLOW_HOME=/var/lib/airflow
CMD ["freshet", "--help"]
