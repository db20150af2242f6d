--  Exceptions, tasks, floating point and a case in Ada.
with Ada.Exceptions; use Ada.Exceptions;
with Ada.Numerics.Elementary_Functions; use Ada.Numerics.Elementary_Functions;
with Ada.Text_IO; use Ada.Text_IO;

procedure Mixed is
   Refused : exception;

   function Act (N : Integer) return Integer is
   begin
      case N mod 8 is
         when 0 => return N + 3;
         when 1 => return N * 5;
         when 2 => return N - 7;
         when 3 => raise Refused with Integer'Image (N);
         when 4 => return N * 2 + 1;
         when 5 => return N * 4;
         when 6 => return N / 3;
         when others => return -N;
      end case;
   end Act;

   function Guarded (N : Integer) return Integer is
   begin
      return Act (N);
   exception
      when E : Refused => return Integer'Value (Exception_Message (E)) * 100;
   end Guarded;

   protected Total is
      procedure Add (N : Integer);
      function Value return Integer;
   private
      Sum : Integer := 0;
   end Total;

   protected body Total is
      procedure Add (N : Integer) is
      begin
         Sum := Sum + N;
      end Add;
      function Value return Integer is (Sum);
   end Total;

   task type Worker is
      entry Start (First : Integer);
   end Worker;

   task body Worker is
      Base : Integer;
   begin
      accept Start (First : Integer) do
         Base := First;
      end Start;
      for I in 1 .. 300 loop
         Total.Add (Guarded (Base + I));
      end loop;
   end Worker;

   Sum  : Integer := 0;
   Wave : Float := 0.0;
   type Few is array (1 .. 4) of Integer;
   Values : Few := (5, 3, 9, 1);
   Index  : Integer := 4;
begin
   for I in 0 .. 999 loop
      Sum := Sum + Guarded (I);
   end loop;
   Put_Line ("sum" & Integer'Image (Sum));
   declare
      Workers : array (1 .. 4) of Worker;
   begin
      for I in Workers'Range loop
         Workers (I).Start (I * 10);
      end loop;
   end;
   Put_Line ("total" & Integer'Image (Total.Value));
   for I in 1 .. 99 loop
      Wave := Wave + Sin (Float (I) * 0.1) * Sqrt (Float (I));
   end loop;
   Put_Line ("wave" & Integer'Image (Integer (Wave * 100.0)));
   begin
      while Index < Sum loop
         Values (Index) := Index;
         Index := Index + 1;
      end loop;
   exception
      when Constraint_Error => Put_Line ("range" & Integer'Image (Index));
   end;
   select
      delay 0.01;
      Put_Line ("late");
   then abort
      loop
         Index := (Index * 7 + 1) mod 1000;
         delay 0.0;
      end loop;
   end select;
   Sum := 0;
   begin
      Sum := 7 / Sum;
   exception
      when Constraint_Error => Put_Line ("division");
   end;
end Mixed;
