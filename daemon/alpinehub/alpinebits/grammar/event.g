# Events in and around the hotel.

OTA_HotelPostEventNotifRS [2020-]
  like push_answer

OTA_HotelPostEventNotifRQ [2020-]
  @Version! any
  EventReports
    EventReport{1,99}
      EventSites
        EventSite
          like hotel
          Event_ID
            @ID! text [-2022]
            @ID! text32 [2024-]
            @ID_Context! text [-2022]
            @ID_Context! text32 [2024-]
            @Type! {18}
      GeneralEventInfo
        @Type text
        @URL web
        @Acronym text [-2022]
        @Acronym text32 [2024-]
        EventContacts?
          EventContact+
            @Role text [-2022]
            @Role text32 [2024-]
            PersonName?
              GivenName? : text [-2022]
              GivenName? : text64 [2024-]
              Surname : text [-2022]
              Surname : text64 [2024-]
            URL? : text
              @Type! {Image}
            EmployeeInfo?
              @EmployeeId text16
        AttendeeInfo?
          @TotalQuantity! natural
          @PreRegisteredQuantity! natural
        Dates?
          Date{1,99}
            @Start! text [-2022]
            @Start! moment [2024-]
            @End text [-2022]
            @End moment [2024-]
            EndDateWindow?
              @LatestDate! text [-2022]
              @LatestDate! day_or_moment [2024-]
            LocationCategories?
              Location?
                @AreaID! text [-2022]
                @AreaID! digits_8 [2024-]
              Category+ : text
                @Language! language
        Comments?
          Comment+
            @Name! {Title|Category|Gallery|Description}
            Text* : text
              @Language language
            Image* : text
