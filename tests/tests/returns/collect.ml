(* Collections while frames of many kinds are on the stack, exceptions, closures, floats. *)
exception Found of int list

module Names = Hashtbl.Make (struct
  type t = string
  let equal = String.equal
  let hash = Hashtbl.hash
end)

let rec build depth = if depth = 0 then [] else (depth, string_of_int depth) :: build (depth - 1)

let rec search wanted = function
  | [] -> raise Not_found
  | (n, _) :: _ when n = wanted -> raise (Found [ n; wanted ])
  | _ :: rest -> 1 + search wanted rest

let many a b c d e f g h i j = a + b + c + d + e + f + g + h + i + j

let average values =
  let sum = List.fold_left ( +. ) 0. values in
  sum /. float (List.length values)

let () =
  let names = Names.create 10 in
  let total = ref 0 in
  for round = 1 to 300 do
    let pairs = build (round mod 97) in
    List.iter (fun (n, name) -> Names.replace names name (n * round)) pairs;
    (match search (round mod 131) pairs with
     | n -> total := !total + n
     | exception Found l -> total := !total + List.length l
     | exception Not_found -> incr total);
    if round mod 50 = 0 then Gc.compact ()
  done;
  let sum = Names.fold (fun _ n all -> all + n) names 0 in
  let apply = if Sys.opaque_identity true then many else fun _ _ _ _ _ _ _ _ _ _ -> 0 in
  Printf.printf "%d %d %d %.3f\n" !total sum (apply 1 2 3 4 5 6 7 8 9 10)
    (average (List.init 1000 float));
  (try ignore (Array.make 3 0).(Sys.opaque_identity 3) with Invalid_argument what -> print_endline what);
  let stack = Printexc.get_callstack 3 in
  print_int (Printexc.raw_backtrace_length stack)
