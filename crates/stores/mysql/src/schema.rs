//! The tables, and how a database comes to have them.

use clinch_core::{Error, ErrorKind, Result};

use crate::error::Trouble;
use crate::pool::Pool;
use crate::row::optional;
use crate::sql::{NOW, Sql};

/// The version of the tables.
const VERSION: u64 = 2;
/// A version with the same tables, whose rows this one can read. Its clients cannot read all rows of
/// this one.
const BEFORE: u64 = 1;
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
    if version == BEFORE {
        let raise = Sql::new("UPDATE clinch_meta SET version=GREATEST(version,?) WHERE ns=?")
            .with(VERSION)
            .bytes(VERSION_ROW.as_bytes());
        let raised = pool.query(&raise).await;
        raised.map_err(|trouble| trouble.into_error(pool.to()))?;
        return Ok(());
    }
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
    let sql = Sql::new(format!("SELECT version,{NOW} FROM clinch_meta WHERE ns=?"))
        .bytes(VERSION_ROW.as_bytes());
    let row = pool.query(&sql).await?.into_first_row();
    let mut values = row.unwrap_or_default().into_iter();
    let mut number = || values.next().and_then(optional).flatten();
    let (version, now) = (number(), number());
    // So that the first claim can say how late it may arrive.
    if let Some(now) = now {
        pool.late.heard(now);
    }
    Ok(version)
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
