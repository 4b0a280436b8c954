//! The tables, and how a database comes to have them.

use clinch_core::{Error, ErrorKind, Result};

use crate::error::Trouble;
use crate::pool::Pool;
use crate::row::optional;
use crate::sql::Sql;

/// The version of the tables.
const VERSION: u64 = 1;
/// The namespace of the row that has the version; no real one is empty.
const VERSION_ROW: &str = "";

/// Names are bytes: `A` is not `a`, and a trailing blank counts. `clinch_events` is written only
/// while somebody watches.
const TABLES: [&str; 3] = [
    "CREATE TABLE IF NOT EXISTS clinch_meta (
    ns            VARBINARY(64)   NOT NULL,
    version       INT UNSIGNED    NOT NULL DEFAULT 0,
    floor         BIGINT UNSIGNED NOT NULL DEFAULT 0,
    watched_until BIGINT UNSIGNED NOT NULL DEFAULT 0,
    reaped        BIGINT UNSIGNED NOT NULL DEFAULT 0,
    PRIMARY KEY (ns)
) ENGINE=InnoDB",
    "CREATE TABLE IF NOT EXISTS clinch_names (
    ns      VARBINARY(64)   NOT NULL,
    name    VARBINARY(255)  NOT NULL,
    seq     BIGINT UNSIGNED NOT NULL,
    token   BIGINT UNSIGNED NOT NULL,
    request VARBINARY(16)   NOT NULL,
    since   BIGINT UNSIGNED NOT NULL,
    until   BIGINT UNSIGNED NOT NULL,
    lease   BIGINT UNSIGNED NOT NULL,
    owner   VARBINARY(31)   NOT NULL,
    details MEDIUMBLOB      NOT NULL,
    ended   VARBINARY(448)  NOT NULL,
    state   LONGBLOB        NULL,
    PRIMARY KEY (ns, name)
) ENGINE=InnoDB ROW_FORMAT=DYNAMIC",
    "CREATE TABLE IF NOT EXISTS clinch_events (
    id   BIGINT UNSIGNED NOT NULL AUTO_INCREMENT,
    ns   VARBINARY(64)   NOT NULL,
    at   BIGINT UNSIGNED NOT NULL,
    told LONGBLOB        NOT NULL,
    PRIMARY KEY (id)
) ENGINE=InnoDB",
];

/// The tables as SQL, for whoever makes them by hand; `clinch doctor --print-schema` prints it.
///
/// ```
/// let schema = clinch_mysql::schema();
/// assert!(schema.contains("CREATE TABLE IF NOT EXISTS clinch_names"));
/// ```
pub fn schema() -> String {
    let mut text: String = TABLES.iter().map(|table| format!("{table};\n")).collect();
    text += &format!(
        "INSERT IGNORE INTO clinch_meta (ns, version) VALUES ('{VERSION_ROW}', {VERSION});\n"
    );
    text
}

/// Makes the tables if they are missing, and refuses those of another version.
pub(crate) async fn ensure(pool: &Pool) -> Result<()> {
    let version = match version(pool).await {
        Ok(Some(version)) => version,
        Ok(None) => {
            create(pool).await?;
            VERSION
        }
        Err(trouble) if trouble.is_missing_table() => {
            create(pool).await?;
            version(pool)
                .await
                .map_err(|trouble| trouble.into_error(pool.to()))?
                .unwrap_or(0)
        }
        Err(trouble) => return Err(trouble.into_error(pool.to())),
    };
    if version != VERSION {
        return Err(Error::new(
            ErrorKind::Corrupt,
            format!(
                "the tables were made by a newer clinch (format {version}, this one knows {VERSION}); \
                 they were left untouched"
            ),
        )
        .with_advice("upgrade clinch, or use another database"));
    }
    Ok(())
}

async fn version(pool: &Pool) -> Result<Option<u64>, Trouble> {
    let sql = Sql::new("SELECT version FROM clinch_meta WHERE ns=?").bytes(VERSION_ROW.as_bytes());
    let reply = pool.query(&sql).await?;
    let value = reply.into_first_value();
    Ok(value.and_then(optional).flatten())
}

/// Several clients may do this at once: each statement leaves what is there.
async fn create(pool: &Pool) -> Result<()> {
    for statement in schema().split(";\n").filter(|text| !text.is_empty()) {
        let made = pool.query(&Sql::new(statement)).await;
        if let Err(trouble) = made {
            let denied = trouble.is_denied();
            let error = trouble.into_error(pool.to());
            return Err(match denied {
                true => error.with_advice(
                    "the tables are missing and this user may not make them: have somebody run \
                     what `clinch doctor --print-schema` prints",
                ),
                false => error,
            });
        }
    }
    Ok(())
}
