SELECT sum(hash({columns})) FROM source;
