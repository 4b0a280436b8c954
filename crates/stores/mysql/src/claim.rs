//! The statements that take a name.

use clinch_table::{Reply, Retake, Row, Sent, Take};

use crate::columns::{self, COLUMNS};
use crate::connection::Mode;
use crate::dialect::MySql;
use crate::events::WATCHED;
use crate::sql::{NOW, Sql};

/// Takes a free name, or extends the lease of a repeated claim; returns the row in any case.
pub(crate) async fn take(mysql: &MySql, take: &Take<'_>) -> Sent<Reply<Option<Row>>> {
    let (sql, mode) = match mysql.returning {
        true => (take_returning(mysql, take), Mode::Prepared),
        false => (take_and_select(mysql, take), Mode::Text),
    };
    let response = mysql.send(&sql, mode).await?;
    let (repeated, slack) = (response.repeated, response.took);
    let values = response.into_first_row();
    Ok(Reply {
        value: values.and_then(|values| columns::row(values, slack)),
        repeated,
    })
}

/// On MariaDB the row is returned by the statement itself.
fn take_returning(mysql: &MySql, take: &Take<'_>) -> Sql {
    insert(mysql, take, String::new()).then(&format!(" RETURNING {COLUMNS},{NOW}"))
}

/// On MySQL a SELECT in the same request returns it; the request begins with the time.
fn take_and_select(mysql: &MySql, take: &Take<'_>) -> Sql {
    insert(mysql, take, format!("SET @clinch={NOW};"))
        .then(&format!(
            ";SELECT {COLUMNS},@clinch FROM clinch_names WHERE ns=? AND name=?"
        ))
        .bytes(&mysql.ns)
        .bytes(take.name.as_str().as_bytes())
}

/// Assignments are made in order and see those before: `token>seq` says from the first on that this
/// statement grants. An empty `request` takes nothing: the name is watched, and the slow path logs its
/// events; or the claim arrived after its deadline.
fn insert(mysql: &MySql, take: &Take<'_>, mut text: String) -> Sql {
    text += &format!(
        "INSERT INTO clinch_names (ns,name,request,lease,since,until,seq,token,owner,details,ended) \
         VALUES (?,?,IF({WATCHED} OR {NOW}>?,'',?),?,{NOW},IF(request='',0,{NOW}+lease),\
         GREATEST({NOW},?,COALESCE((SELECT floor FROM clinch_meta WHERE ns=?),0)+1),\
         IF(request='',0,seq),?,?,'') \
         ON DUPLICATE KEY UPDATE \
         token=IF(VALUES(request)<>'' AND request='' AND state IS NULL AND \
         LOCATE(VALUES(request),ended)=0,GREATEST(seq+1,VALUES(seq)),token),\
         until=IF(token>seq OR (VALUES(request)<>'' AND request=VALUES(request) AND \
         state IS NULL AND until>{NOW}),GREATEST(until,VALUES(until)),until),\
         lease=IF(token>seq,VALUES(lease),\
         IF(request=VALUES(request),GREATEST(lease,VALUES(lease)),lease)),\
         since=IF(token>seq,VALUES(since),since),\
         owner=IF(token>seq,VALUES(owner),owner),\
         details=IF(token>seq,VALUES(details),details),\
         request=IF(token>seq,VALUES(request),request),\
         seq=IF(token>seq,token,\
         seq+(VALUES(request)<>'' AND request=VALUES(request) AND state IS NULL))"
    );
    Sql::new(text)
        .bytes(&mysql.ns)
        .bytes(take.name.as_str().as_bytes())
        .bytes(&mysql.ns)
        .with(take.latest)
        .bytes(&take.content.request)
        .with(take.lease)
        .with(take.least_seq)
        .bytes(&mysql.ns)
        .bytes(&take.content.owner)
        .bytes(&take.content.details)
}

/// Takes a free name whose row this client wrote last.
///
/// The version proves that the row is as this client left it, so no other column is compared but the one
/// that the client does not know: the claims that have ended. The sequence number is returned as the last
/// inserted id.
pub(crate) async fn retake(mysql: &MySql, retake: &Retake<'_>) -> Sent<Reply<Option<u64>>> {
    let content = retake.content;
    let sql = Sql::new(format!(
        "UPDATE clinch_names SET since={NOW},seq=LAST_INSERT_ID(GREATEST(?,since)),token=seq,\
         until=since+?,lease=?,owner=?,details=?,request=? \
         WHERE ns=? AND name=? AND seq=? AND LOCATE(?,ended)=0 AND {NOW}<?"
    ))
    .with(retake.least_seq)
    .with(retake.lease)
    .with(retake.lease)
    .bytes(&content.owner)
    .bytes(&content.details)
    .bytes(&content.request)
    .bytes(&mysql.ns)
    .bytes(retake.name.as_str().as_bytes())
    .with(retake.version)
    .bytes(&content.request)
    .with(retake.before);
    mysql.update_one(&sql).await
}
