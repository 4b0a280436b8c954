//! The tables, and how they are created.

use clinch_core::{Error, ErrorKind, Result};

use crate::columns::next_number;
use crate::connection::Pool;
use crate::error::RequestError;
use crate::sql::{NOW, Sql};

/// The version of the tables.
const VERSION: u64 = 2;
/// A version with the same tables, whose rows this one can read. Its clients cannot read all rows of
/// this one.
const BEFORE: u64 = 1;
/// The namespace of the row that has the version; no real one is empty.
const VERSION_ROW: &str = "";

/// Names are bytes: `A` is not `a`, and a trailing blank counts. `clinch_events` is written only
/// while a client watches. `seq` is the version of a row, `token` its last sequence number.
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

/// The tables as SQL, to create them by hand; `clinch doctor --print-schema` prints it.
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

/// Creates the tables if they are missing, and refuses those of a newer version. Returns the server's clock.
pub(crate) async fn ensure(pool: &Pool) -> Result<Option<u64>> {
    let (version, now) = match version(pool).await {
        Ok(Some((version, now))) => (version, now),
        Ok(None) => {
            create(pool).await?;
            (VERSION, None)
        }
        Err(error) if error.is_missing_table() => {
            create(pool).await?;
            let read = version(pool).await.map_err(|error| pool.error(error))?;
            read.unwrap_or((0, None))
        }
        Err(error) => return Err(pool.error(error)),
    };
    if version == BEFORE {
        let raise = Sql::new("UPDATE clinch_meta SET version=GREATEST(version,?) WHERE ns=?")
            .with(VERSION)
            .bytes(VERSION_ROW.as_bytes());
        let raised = pool.query(&raise).await;
        raised.map_err(|error| pool.error(error))?;
        return Ok(now);
    }
    if version != VERSION {
        return Err(Error::new(
            ErrorKind::Corrupt,
            format!(
                "the tables were made by a newer clinch (format {version}, this one supports {VERSION}); \
                 they were left untouched"
            ),
        )
        .with_advice("upgrade clinch, or use another database"));
    }
    Ok(now)
}

/// The version of the tables, and the server's clock.
async fn version(pool: &Pool) -> Result<Option<(u64, Option<u64>)>, RequestError> {
    let sql = Sql::new(format!("SELECT version,{NOW} FROM clinch_meta WHERE ns=?"))
        .bytes(VERSION_ROW.as_bytes());
    let row = pool.query(&sql).await?.into_first_row();
    let mut values = row.unwrap_or_default().into_iter();
    let version = next_number(&mut values);
    Ok(version.map(|version| (version, next_number(&mut values))))
}

/// Several clients may do this at once: each statement leaves what is there.
async fn create(pool: &Pool) -> Result<()> {
    for statement in schema().split(";\n").filter(|text| !text.is_empty()) {
        let made = pool.query(&Sql::new(statement)).await;
        if let Err(error) = made {
            let denied = error.is_denied();
            let error = pool.error(error);
            return Err(match denied {
                true => error.with_advice(
                    "the tables are missing and this user may not create them: run what `clinch \
                     doctor --print-schema` prints as another user",
                ),
                false => error,
            });
        }
    }
    Ok(())
}
