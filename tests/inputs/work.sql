pragma journal_mode = delete;
create table t(a integer primary key, b int, c text);
with recursive n(i) as (select 1 union all select i + 1 from n where i < 3000) insert into t select i, (i * 7919) % 1009, 'row ' || i from n;
create index tb on t(b); create view v as select b % 10 as k, count(*) as n, avg(a) as m from t group by 1;
select * from v order by k; select count(*) from t x join t y on x.b = y.a where y.c like '%7%';
update t set c = upper(c) where b < 100; delete from t where a % 11 = 0; select a, c from t where b between 50 and 55 order by b desc, a limit 10;
select sum(length(c)), max(c), min(b), total(a) from t; explain query plan select * from t where b = 5;
select a, b, rank() over (partition by b % 3 order by a) from t where a < 12; select printf('%.3f|%5d|%s', 3.14159, 42, 'x'), hex('abc'), json_extract('{"a":[1,2]}', '$.a[1]');
begin; insert into t values (100000, 1, 'gone'); rollback; select count(*) from t where a = 100000; vacuum; pragma integrity_check;
