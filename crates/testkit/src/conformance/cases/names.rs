//! Names are kept apart byte by byte.

use super::prelude::*;

cases! { "names";
    twins_are_different [] "case, spaces, dots, slashes, unicode forms: no two names are folded into one";
    twins_are_listed_as_they_are [Need::Has(Capability::List)] "each comes back exactly, in byte order";
    the_longest_name [] "255 bytes work, and differ in the last of them";
    a_bad_name_is_refused [] "empty, too long, with a NUL: an error before any I/O";
    prefixes_are_taken_literally [Need::Has(Capability::List)] "% and _ and * in a prefix match themselves only";
    hierarchy_is_only_a_name [] "holding a/b takes nothing from a, a/ or a/b/c";
}

/// Names that some engine, file system or collation would fold together, or trip over.
fn twins() -> Vec<String> {
    let mut names: Vec<String> = [
        "a",
        "A",
        "a ",
        " a",
        "a  ",
        "a\t",
        "a\n",
        "\na",
        "a\r\n",
        "a/",
        "/a",
        "a//b",
        "a/b",
        "a/./b",
        "a/../b",
        ".",
        "..",
        "...",
        "/",
        "//",
        "./a",
        "%",
        "%%",
        "%61",
        "a%2Fb",
        "_",
        "?",
        "*",
        "[a]",
        "'",
        "''",
        "\"",
        "`",
        "\\",
        "\\\\",
        "'; DROP TABLE x; --",
        "$a",
        "{a}",
        "a:b",
        "a;b",
        "a,b",
        "a=b",
        "a&b",
        "#",
        "-",
        "--",
        "~",
        "null",
        "NULL",
        "0",
        "00",
        "é",
        "e\u{301}",
        "É",
        "ß",
        "ss",
        "ẞ",
        "ı",
        "i",
        "İ",
        "I",
        "ﬁ",
        "fi",
        "а",
        "ａ",
        "Ω",
        "\u{2126}",
        "K",
        "\u{212a}",
        "ſ",
        "s",
        "日本",
        "日本\u{200b}",
        "\u{feff}a",
        "🔒",
        "🔒\u{fe0f}",
        "\u{1}",
        "\u{7f}",
        "\u{85}",
        "\u{2028}",
        "\u{10ffff}",
        "lock-0000000001",
        "__proto__",
    ]
    .map(str::to_owned)
    .into();
    names.extend(["x".repeat(255), "X".repeat(255), "x".repeat(254)]);
    names.push("é".repeat(127));
    let distinct: std::collections::BTreeSet<_> = names.iter().collect();
    assert_eq!(distinct.len(), names.len(), "the list itself has a pair");
    names
}

async fn twins_are_different(ctx: &Ctx) -> Outcome {
    let (a, b) = (ctx.client().await, ctx.client().await);
    let mut guards = Vec::new();
    for name in twins() {
        let taken = a.lock(&name).lease(ctx.long()).try_acquire().await?;
        guards.push(taken.unwrap_or_else(|| panic!("{name:?} is folded into another")));
    }
    for (name, guard) in twins().iter().zip(&guards) {
        assert_eq!(guard.name().as_str(), name);
        let tried = b.lock(name).lease(ctx.long()).try_acquire().await?;
        assert!(tried.is_none(), "{name:?} is held twice");
    }
    for guard in guards {
        assert_eq!(guard.release().await?, ReleaseReply::Released);
    }
    Ok(())
}

async fn twins_are_listed_as_they_are(ctx: &Ctx) -> Outcome {
    let (a, b) = (ctx.client().await, ctx.client().await);
    let mut names = twins();
    let mut guards = Vec::new();
    for name in &names {
        guards.push(a.lock(name).lease(ctx.long()).acquire().await?);
    }
    names.sort_unstable();
    let listed = b.list("").await?;
    let listed: Vec<_> = listed.iter().map(|view| view.name.as_str()).collect();
    assert_eq!(listed, names);
    for name in &names {
        let view = b.inspect(name).await?.expect("it is held");
        assert_eq!(view.name.as_str(), name);
    }
    Ok(())
}

async fn the_longest_name(ctx: &Ctx) -> Outcome {
    let (a, b) = (ctx.client().await, ctx.client().await);
    assert_eq!(a.info().limits.max_name, 255);
    let one = format!("{}1", "n".repeat(254));
    let two = format!("{}2", "n".repeat(254));
    let first = a.lock(&one).lease(ctx.long()).acquire().await?;
    assert!(
        b.lock(&one)
            .lease(ctx.long())
            .try_acquire()
            .await?
            .is_none()
    );
    assert!(
        b.lock(&two)
            .lease(ctx.long())
            .try_acquire()
            .await?
            .is_some()
    );
    assert!(first.is_valid());
    Ok(())
}

async fn a_bad_name_is_refused(ctx: &Ctx) -> Outcome {
    let a = ctx.client().await;
    let before = a.operations();
    for name in [String::new(), "x".repeat(256), "a\0b".into()] {
        let lock = a.lock(&name).lease(ctx.long());
        for outcome in [
            lock.try_acquire().await,
            lock.acquire_within(PATIENCE).await,
            lock.acquire().await.map(Some),
        ] {
            let refused = outcome.unwrap_err();
            assert_eq!(refused.kind(), ErrorKind::Invalid);
            assert!(refused.advice().is_some());
        }
        let all = a.all(["fine", &name]).lease(ctx.long());
        assert_eq!(
            all.try_acquire().await.unwrap_err().kind(),
            ErrorKind::Invalid
        );
    }
    assert_eq!(a.operations(), before, "nothing was sent");
    Ok(())
}

async fn prefixes_are_taken_literally(ctx: &Ctx) -> Outcome {
    let a = ctx.client().await;
    let mut guards = Vec::new();
    for name in ["a%b", "axb", "a_b", "a*b", "a/b", "A/b", "a", "b", "a\\b"] {
        guards.push(a.lock(name).lease(ctx.long()).acquire().await?);
    }
    for (prefix, expected) in [
        ("a%", vec!["a%b"]),
        ("a_", vec!["a_b"]),
        ("a*", vec!["a*b"]),
        ("a\\", vec!["a\\b"]),
        ("a/", vec!["a/b"]),
        ("A", vec!["A/b"]),
        ("c", vec![]),
        ("a", vec!["a", "a%b", "a*b", "a/b", "a\\b", "a_b", "axb"]),
    ] {
        let listed = a.list(prefix).await?;
        let listed: Vec<_> = listed.iter().map(|view| view.name.as_str()).collect();
        assert_eq!(listed, expected, "for {prefix:?}");
    }
    Ok(())
}

async fn hierarchy_is_only_a_name(ctx: &Ctx) -> Outcome {
    let (a, b) = (ctx.client().await, ctx.client().await);
    let _held = a.lock("a/b").lease(ctx.long()).acquire().await?;
    for name in ["a", "a/", "a/b/", "a/b/c", "b"] {
        let other = b.lock(name).lease(ctx.long()).try_acquire().await?;
        assert!(other.is_some(), "{name} is taken");
    }
    Ok(())
}
