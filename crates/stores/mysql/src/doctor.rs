//! Settings of the server that would break a guarantee.

use clinch_core::store::{Finding, Severity};
use clinch_core::{ErrorKind, Result};

use crate::columns;
use crate::config::Config;
use crate::connection::Pool;
use crate::server::Server;
use crate::sql::Sql;

/// If idle sessions end sooner, every lock after a pause is slow.
const SHORT_WAIT: u64 = 60;
/// A transaction that is open for longer blocks others from its rows, in seconds.
const OLD_TRANSACTION: u64 = 5;

/// Examines the server.
pub(crate) async fn examine(pool: &Pool, config: &Config) -> Result<Vec<Finding>> {
    let server = Server::read(pool).await?;
    let mut findings = vec![
        identity(&server, pool),
        durability(&server),
        tables(pool).await?,
    ];
    findings.push(connections(&server, pool, config).await?);
    findings.extend(sessions(&server));
    findings.push(transactions(pool).await);
    Ok(findings)
}

fn identity(server: &Server, pool: &Pool) -> Finding {
    let comment = server.setting("version_comment").unwrap_or_default();
    let message = format!("{} is {} {comment}", pool.address(), server.version());
    match server.check(pool.address()) {
        Err(error) => finding(
            Severity::Broken,
            "server",
            error.message().to_owned(),
            error.advice().unwrap_or_default(),
        ),
        Ok(()) if !server.is_mariadb() => finding(
            Severity::Ok,
            "server",
            message,
            "clinch is tested on MariaDB, with the statements that MySQL is sent",
        ),
        Ok(()) => finding(Severity::Ok, "server", message, ""),
    }
}

fn durability(server: &Server) -> Finding {
    let flush = server.setting("innodb_flush_log_at_trx_commit");
    if flush.is_some_and(|flush| flush != "1") {
        return finding(
            Severity::Warning,
            "durability",
            format!(
                "innodb_flush_log_at_trx_commit is {}: a crash may forget the last second of \
                 grants, and grant them again",
                flush.unwrap_or_default()
            ),
            "set it to 1",
        );
    }
    if server.is_on("log_bin") && server.number("sync_binlog") != Some(1) {
        return finding(
            Severity::Warning,
            "durability",
            "sync_binlog is not 1: after a crash replicas may lack, or have more than, the primary"
                .to_owned(),
            "set it to 1 if a replica may ever become the primary",
        );
    }
    finding(
        Severity::Ok,
        "durability",
        "each commit is flushed".to_owned(),
        "",
    )
}

async fn tables(pool: &Pool) -> Result<Finding> {
    let other = number(
        pool,
        "SELECT COUNT(*) FROM information_schema.tables WHERE table_schema=DATABASE() AND \
         table_name IN ('clinch_names','clinch_meta','clinch_events') AND engine<>'InnoDB'",
    )
    .await?;
    Ok(match other {
        Some(0) => finding(
            Severity::Ok,
            "tables",
            "the tables are there, on InnoDB".to_owned(),
            "",
        ),
        _ => finding(
            Severity::Broken,
            "tables",
            "a table of clinch is not on InnoDB".to_owned(),
            "ALTER TABLE … ENGINE=InnoDB: other engines lose rows in a crash, and lock tables",
        ),
    })
}

async fn connections(server: &Server, pool: &Pool, config: &Config) -> Result<Finding> {
    let most = server.number("max_connections").unwrap_or(0);
    let reply = pool
        .query(&Sql::new("SHOW STATUS LIKE 'Threads_connected'"))
        .await;
    let row = reply
        .map_err(|error| pool.error(error))?
        .into_first_row()
        .unwrap_or_default();
    let used = row.into_iter().nth(1).and_then(columns::number).flatten();
    let used = used.unwrap_or(0);
    // The pool, and two more while claims of this process wait.
    let need = config.pool as u64 + 2;
    let message =
        format!("{used} of {most} connections are in use, and a process takes up to {need}");
    Ok(match used + need > most {
        true => finding(
            Severity::Warning,
            "connections",
            message,
            "raise max_connections, or use a smaller pool=",
        ),
        false => finding(Severity::Ok, "connections", message, ""),
    })
}

fn sessions(server: &Server) -> Option<Finding> {
    let wait = server.number("wait_timeout")?;
    (wait < SHORT_WAIT).then(|| {
        finding(
            Severity::Warning,
            "sessions",
            format!("wait_timeout is {wait} s; clinch sets more for its own sessions"),
            "if something in between ends idle connections, each pause costs a new one",
        )
    })
}

async fn transactions(pool: &Pool) -> Finding {
    let sql = format!(
        "SELECT COUNT(*) FROM information_schema.innodb_trx WHERE trx_rows_locked>0 AND \
         trx_started<NOW()-INTERVAL {OLD_TRANSACTION} SECOND"
    );
    match number(pool, &sql).await {
        Ok(Some(0)) => finding(
            Severity::Ok,
            "transactions",
            "no transaction keeps rows locked".to_owned(),
            "",
        ),
        Ok(count) => finding(
            Severity::Warning,
            "transactions",
            format!(
                "{} transactions have kept rows locked for more than {OLD_TRANSACTION} s",
                count.unwrap_or(0)
            ),
            "if rows of clinch_names are among them, their locks stand still: see \
             information_schema.innodb_trx",
        ),
        Err(error) => {
            let why = match error.kind() {
                ErrorKind::Denied => "this user may not (the right is PROCESS)".to_owned(),
                _ => error.to_string(),
            };
            let said = format!("open transactions cannot be looked for: {why}");
            finding(Severity::Ok, "transactions", said, "")
        }
    }
}

async fn number(pool: &Pool, text: &str) -> Result<Option<u64>> {
    let reply = pool.query(&Sql::new(text)).await;
    let value = reply.map_err(|error| pool.error(error))?.into_first_value();
    Ok(value.and_then(columns::number).flatten())
}

fn finding(severity: Severity, subject: &str, message: String, advice: &str) -> Finding {
    let finding = Finding::new(severity, subject, message);
    match advice {
        "" => finding,
        advice => finding.with_advice(advice),
    }
}
