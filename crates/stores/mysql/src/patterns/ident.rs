//! Names of tables and columns, which cannot be bound like values.

use clinch_core::{Error, Result};

/// The longest name that the server takes, in characters.
const LONGEST: usize = 64;

/// The name of a column, quoted.
pub(super) fn column(name: &str) -> Result<String> {
    let refused = |why: &str| {
        Err(Error::invalid(format!("{name:?} names no table or column: {why}")).with_store("mysql"))
    };
    match name {
        "" => refused("it is empty"),
        _ if name.chars().count() > LONGEST => refused("it is longer than 64 characters"),
        // The server does not know them even in quotes.
        _ if name.chars().any(|c| c == '\0' || c > '\u{ffff}') => refused("of its characters"),
        _ if name.ends_with(' ') => refused("it ends with a blank"),
        _ => Ok(format!("`{}`", name.replace('`', "``"))),
    }
}

/// The name of a table, quoted; `database.table` is one of another database.
pub(super) fn table(name: &str) -> Result<String> {
    match name.split_once('.') {
        Some((database, name)) => Ok(format!("{}.{}", column(database)?, column(name)?)),
        None => column(name),
    }
}

/// `a = ?, b = ?` of the columns that a caller wants to change.
pub(super) fn assignments<'a>(columns: impl Iterator<Item = &'a str>) -> Result<String> {
    let mut list = String::new();
    for name in columns {
        list += &format!("{} = ?, ", column(name)?);
    }
    Ok(list)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_quoted() {
        assert_eq!(column("a").unwrap(), "`a`");
        assert_eq!(
            column("a`; DROP TABLE b; --").unwrap(),
            "`a``; DROP TABLE b; --`"
        );
        assert_eq!(table("shop.stock").unwrap(), "`shop`.`stock`");
        assert_eq!(table("a.b.c").unwrap(), "`a`.`b.c`");
        assert_eq!(
            assignments(["a", "b"].into_iter()).unwrap(),
            "`a` = ?, `b` = ?, "
        );
    }

    #[test]
    fn what_is_no_name_is_refused() {
        let long = "x".repeat(65);
        for bad in ["", "a\0b", "a ", "😀", &long] {
            assert!(column(bad).is_err(), "{bad:?}");
        }
        assert!(table("a.").is_err() && table(".a").is_err());
    }
}
